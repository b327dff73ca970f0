"""What an extension must do, as classes of tests to subclass: they need ``pip install pytest``.

A search backend, a vector database and a release target each have a module here. Nothing else of
the package imports them.
"""

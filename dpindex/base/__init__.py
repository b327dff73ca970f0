"""Base: arrays, checks, errors, files, HTML, progress and threads, which every room uses."""

"""Every way on which codes and counts are released, against a second computation.

Public vectors are released while the secret words that are read are recorded, and what comes out is
compared with what these words stand for. The functions replace the secret stream meanwhile.
"""

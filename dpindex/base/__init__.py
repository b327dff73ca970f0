"""What every room uses: arrays, checks, errors, files, HTML, progress, threads."""

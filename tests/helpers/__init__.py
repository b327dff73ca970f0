"""What several rooms of tests share: specs, streams, servers, databases and datasets."""

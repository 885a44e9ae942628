"""The cluster's shared state: a tree of versioned nodes with sessions and watches, after ZooKeeper."""

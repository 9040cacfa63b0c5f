"""Starting processes and watching them."""

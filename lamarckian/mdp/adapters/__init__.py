"""Games of other libraries as MDPs. Each module imports its library; nothing else in the package does."""

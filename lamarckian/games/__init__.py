"""The built-in games: for each one its compiled rules, the MDP, bots to play against, and a view."""

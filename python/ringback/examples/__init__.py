"""Short, readable programs over the public interface; ``ringback train`` runs them."""

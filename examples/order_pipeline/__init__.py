"""The orders of a shop: chains that branch, loop and wait for each other, with an exact ledger."""

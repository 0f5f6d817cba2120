"""A shop's orders, from the shelf to the parcel: chains that branch, loop and wait for each other, with exact books."""

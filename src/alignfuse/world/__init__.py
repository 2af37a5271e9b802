"""The embedded data set: generated scenes with everything that is true of them."""

"""One seed for each sample of each epoch, the root of all its random choices."""

import random

MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """A 63-bit hash of whole numbers in order, by the finaliser of SplitMix64 (Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = (state + (number & MASK) + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state >> 1


def generator(seed: int, name: str) -> random.Random:
    """A generator for one kind of choice ("augment", "caption"): what one kind draws never shifts another."""
    return random.Random(f"{seed} {name}")

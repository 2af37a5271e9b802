"""`python -m alignfuse`, and `torchrun -m alignfuse` for several processes."""

from alignfuse.cli import main

if __name__ == "__main__":
    main()

"""``python -m kernelassay`` is ``kernelassay``."""

from kernelassay.cli import main

if __name__ == "__main__":
    main()

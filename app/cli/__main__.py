"""`python -m app.cli` is `trainshed`."""

from app.cli import main

if __name__ == "__main__":
    main()

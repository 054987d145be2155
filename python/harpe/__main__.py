# SPDX-License-Identifier: Apache-2.0
"""`python -m harpe` runs the program harpe."""
from harpe._program import main

if __name__ == "__main__":
    main()

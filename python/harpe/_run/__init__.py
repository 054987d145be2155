# SPDX-License-Identifier: Apache-2.0
"""What `harpe run` and `harpe tune` put into the Python processes of a command. sitecustomize.py,
in this directory, is the import hook; adapters.py is imported when a known framework is."""

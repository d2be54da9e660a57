# SPDX-License-Identifier: Apache-2.0
"""An example plug-in package."""

# SPDX-License-Identifier: Apache-2.0
"""The built-in renderers, one format a file."""

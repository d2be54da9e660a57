# SPDX-License-Identifier: Apache-2.0
"""The built-in fixes, one self-contained script a check."""

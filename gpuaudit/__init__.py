# SPDX-License-Identifier: Apache-2.0
"""Audit of NVIDIA GPU nodes: one engine for a live node, a snapshot and an image root."""

__version__ = "0.1.0.dev0"

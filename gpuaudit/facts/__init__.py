# SPDX-License-Identifier: Apache-2.0
"""Facts: one file a subject, named after what is read. Read here, judged in checks/."""

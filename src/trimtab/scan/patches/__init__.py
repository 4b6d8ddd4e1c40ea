"""From what a workload has and should have to what people review and apply: diffs, commands, patches, their own files.

Pure, text in and text out, but for `apply`, which changes the cluster, and `charts`, which runs `helm template`. The
command reads files and the cluster and asks the user.
"""

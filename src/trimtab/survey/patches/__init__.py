"""From what a workload has and should have to what people review and apply: diffs, commands, patches, their own files.

Pure, text in and text out, but for the two that put it into effect: `files` and `apply`. Who reads the cluster and asks
the user is `cli`.
"""

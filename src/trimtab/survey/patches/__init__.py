"""From what a workload has and should have to what people review and apply: diffs, commands, patches, their own files.

Pure: text in, text out. Who reads the cluster, asks the user and writes files is `cli`.
"""

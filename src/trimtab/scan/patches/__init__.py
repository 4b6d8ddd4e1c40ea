"""Turn recommendations into diffs, commands, patches, and edits of users' own files.

The modules are pure, text in and text out, except `helm_charts`, which runs `helm template`. The command reads files and
the cluster, asks the user, and applies changes.
"""

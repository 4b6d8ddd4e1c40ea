"""Protobuf messages between the operator and its plugins.

The code beside it is made by
`python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/trimtab/intents/plugins/messages/plugin.proto`
and kept, so that an installation needs no compiler; a test says when it is out of date.
"""

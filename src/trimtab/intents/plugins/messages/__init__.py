"""What the operator and plugins say to each other, as protobuf.

The code beside it is made by
`python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/trimtab/intents/plugins/messages/plugin.proto`
and kept, so that an installation needs no compiler; a test says when it is out of date.
"""

"""The messages of remote read, as protoc makes them of `remote.proto`.

Made anew by
`python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/trimtab/usage/prometheus/remote_read/messages/remote.proto`
"""

"""What goes over the sockets of container runtimes, as protobuf: NRI's own .proto file (containerd/nri v0.12.3),
ttrpc's envelope, and the part of CRI that we look into.

The code beside them is made by
`python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/trimtab/node/hooks/messages/*.proto`
and kept, so that an installation needs no compiler; a test says when it is out of date.
"""

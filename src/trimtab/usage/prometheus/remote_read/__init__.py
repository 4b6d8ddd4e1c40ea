"""Read raw samples by Prometheus' remote read: compressed chunks as stored on the server's disk.

A range query over weeks makes a server look at every sample once per step; here it only sends chunks, and the
PromQL functions are computed by Trimtab. Servers without remote read (Thanos Querier, VictoriaMetrics) and
endpoints without POST (the API server's proxy) are queried instead.
"""

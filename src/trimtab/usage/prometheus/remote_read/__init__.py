"""Raw samples by Prometheus' remote read, where a server has it: compressed chunks, as they lie on its disk.

A query over weeks makes a server look at every sample once for each step; here it only hands chunks out, and what
PromQL would have made of them is computed on our side. Servers without it (Thanos' Querier, VictoriaMetrics) and ways on
which nothing can be posted (the API server's proxy) are asked by queries instead.
"""

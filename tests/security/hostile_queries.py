"""Queries that a parser takes much time or memory for, or that overflow its stack."""

HOSTILE_QUERIES = {
    "nested": "(" * 4000 + "1" + ")" * 4000,
    "nested-behind-carriage-return": "#\r" + "(" * 4090 + "1" + ")" * 4090,
    "operators-behind-carriage-return": "1 #\r" + "+1" * 4000,
    "many-operators": "x" + "+x" * 4000,
    "regular-expressions": "x{" + ",".join(f'a{number}=~"\\\\pL{{230}}"' for number in range(94)) + "}",
    "arguments": 'label_join(x,"a","b",' + ",".join(['""'] * 2600) + ")",
    "subqueries": "max_over_time(" * 200 + "x" + "[1s:])" * 200,
}

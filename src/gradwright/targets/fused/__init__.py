"""The fused target: one pass of vector machine code for a whole graph, without a compiler."""

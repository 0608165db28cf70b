"""From shards to weights: stream, packing, model, sharding, loop, checkpoints. No other package imports torch."""

"""From shards to weights: stream, packing, model, sharding, loop, checkpoints. The only room with torch."""

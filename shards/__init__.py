"""The contract that curation and training share: schema, store, manifests, schedule, token shards.

Needs pyarrow, numpy and pydantic, and nothing else of this project.
"""

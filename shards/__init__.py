"""The contract that curation and training share: schema, store, manifests, schedule, token shards.

Needs pyarrow, numpy and pydantic, and imports no other package of this project.
"""

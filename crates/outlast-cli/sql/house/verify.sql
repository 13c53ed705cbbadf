-- The invariants, in one snapshot.
select invariant, violations, example from outlast._verify()

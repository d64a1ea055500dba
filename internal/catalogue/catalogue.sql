-- $1 is the schema. Two columns: the relation that an entry belongs to, or nothing, and its text.
-- Columns are counted, not numbered: one that was dropped leaves a gap in the numbers for ever.
WITH rel AS (
    SELECT c.* FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1
), entry (relation, text) AS (
    SELECT '', format('schema %I acl %s', nspname, nspacl) FROM pg_catalog.pg_namespace WHERE nspname = $1
  UNION ALL
    SELECT relname, format('relation %I kind %s persistence %s options %s acl %s security %s %s identity %s replica %s',
        relname, relkind, relpersistence, reloptions, relacl, relrowsecurity, relforcerowsecurity, relispartition, relreplident)
    FROM rel
  UNION ALL
    SELECT relname, format('column %I %s %I %s notnull %s default %s collation %s identity %s generated %s storage %s target %s acl %s',
        relname, row_number() OVER (PARTITION BY attrelid ORDER BY attnum), attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid),
        nullif(attcollation, 0)::regcollation, attidentity, attgenerated, attstorage, attstattarget, attacl)
    FROM rel JOIN pg_catalog.pg_attribute a ON a.attrelid = rel.oid
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT relname, format('constraint %I %I %s validated %s', relname, conname, pg_get_constraintdef(k.oid), convalidated)
    FROM rel JOIN pg_catalog.pg_constraint k ON k.conrelid = rel.oid
  UNION ALL
    SELECT relname, format('index %s valid %s', pg_get_indexdef(indexrelid), indisvalid)
    FROM rel JOIN pg_catalog.pg_index x ON x.indrelid = rel.oid
  UNION ALL
    SELECT relname, format('trigger %s enabled %s', pg_get_triggerdef(t.oid), tgenabled)
    FROM rel JOIN pg_catalog.pg_trigger t ON t.tgrelid = rel.oid WHERE NOT tgisinternal
  UNION ALL
    SELECT relname, format('rule %s enabled %s', pg_get_ruledef(r.oid), ev_enabled)
    FROM rel JOIN pg_catalog.pg_rewrite r ON r.ev_class = rel.oid
  UNION ALL
    SELECT relname, format('policy %I %s %s %s', polname, polcmd, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
    FROM rel JOIN pg_catalog.pg_policy p ON p.polrelid = rel.oid
  UNION ALL
    SELECT relname, format('sequence %I %s start %s by %s from %s to %s cycle %s',
        relname, seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcycle)
    FROM rel JOIN pg_catalog.pg_sequence s ON s.seqrelid = rel.oid
  UNION ALL
    SELECT '', format('function %s acl %s', pg_get_functiondef(p.oid), proacl)
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = $1 AND prokind IN ('f', 'p')
  UNION ALL
    SELECT '', format('type %I %s %s labels %s', typname, typtype, format_type(nullif(typbasetype, 0), typtypmod),
        (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_catalog.pg_enum WHERE enumtypid = y.oid))
    FROM pg_catalog.pg_type y JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace
    WHERE n.nspname = $1 AND typtype IN ('d', 'e', 'r', 'm')
  UNION ALL
    SELECT relname, format('comment on %s.%s: %s', relname, attname, description)
    FROM rel JOIN pg_catalog.pg_description c ON c.objoid = rel.oid AND c.classoid = 'pg_catalog.pg_class'::regclass
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = rel.oid AND a.attnum = c.objsubid AND c.objsubid > 0
  UNION ALL
    SELECT '', format('comment on %s: %s', pg_describe_object(classoid, objoid, objsubid), description)
    FROM pg_catalog.pg_description c
    WHERE (classoid = 'pg_catalog.pg_proc'::regclass AND objoid IN (
              SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1))
       OR (classoid = 'pg_catalog.pg_constraint'::regclass AND objoid IN (
              SELECT k.oid FROM pg_catalog.pg_constraint k JOIN rel ON rel.oid = k.conrelid))
       OR (classoid = 'pg_catalog.pg_trigger'::regclass AND objoid IN (
              SELECT t.oid FROM pg_catalog.pg_trigger t JOIN rel ON rel.oid = t.tgrelid))
)
SELECT relation::text, text FROM entry ORDER BY text COLLATE "C"

/** Mistakes in comparing and carrying values: inputs, rejections, plans, bodies, facts. */
import type { SourceMutant } from './source-mutant.ts'

export const canonMutants: readonly SourceMutant[] = [
  {
    mutant: 'takes a bigint for its text',
    file: 'src/core/encoding/canonical.ts',
    from: '      return `${value}n`',
    to: '      return `"${value}n"`',
    caughtBy: {
      file: 'src/core/encoding/canonical.test.ts',
      test: 'values that a reader can tell apart have different texts, whatever JSON makes of them',
    },
  },
  {
    mutant: 'takes -0 for 0',
    file: 'src/core/encoding/canonical.ts',
    from: "value === 0 && Object.is(value, -0) ? '-0' : String(value)",
    to: 'String(value)',
    caughtBy: {
      file: 'src/core/encoding/canonical.test.ts',
      test: 'values that a reader can tell apart have different texts, whatever JSON makes of them',
    },
  },
  {
    mutant: 'takes every file and every instance for an empty object',
    file: 'src/core/encoding/canonical.ts',
    from: '  if (!hasToJson(value)) throw refusal(walk, `is ${named(value)}, whose content cannot be seen`)',
    to: "  if (!hasToJson(value)) return '{}'",
    caughtBy: {
      file: 'src/core/encoding/canonical.test.ts',
      test: 'what hides its content is refused by its path: an instance of Blob',
    },
  },
  {
    mutant: 'overlooks symbols as names',
    file: 'src/core/encoding/canonical.ts',
    from: 'Object.getOwnPropertySymbols(value).length > 0',
    to: 'Object.getOwnPropertySymbols(value).length < 0',
    caughtBy: {
      file: 'src/core/encoding/canonical.test.ts',
      test: 'what hides its content is refused by its path: a symbol as a key',
    },
  },
  {
    mutant: 'walks into a cycle until the stack ends',
    file: 'src/core/encoding/canonical.ts',
    from: 'const deepest = 1_000',
    to: 'const deepest = Infinity',
    caughtBy: {
      file: 'src/core/encoding/canonical.test.ts',
      test: 'cycles, too many levels and too much text are refused; the deepest and largest that are allowed are not',
    },
  },
  {
    mutant: 'lets JSON lose what it cannot hold',
    file: 'src/core/encoding/canonical.ts',
    from: '    assertCarried(value, walk, isText)\n    return JSON',
    to: '    return JSON',
    caughtBy: {
      file: 'src/command/model/rejection.pg.test.ts',
      test: 'a response that JSON would change is refused inside the transaction, by its path',
    },
  },
  {
    mutant: 'hands a rejection on as it was made',
    file: 'src/command/model/rejection.ts',
    from: "  return new RejectionError({ reason, details: JSON.parse(text ?? '{}') as Rejection['details'] })",
    to: "  return text === '' ? new Error() : new RejectionError({ reason, details })",
    caughtBy: {
      file: 'src/command/model/rejection.pg.test.ts',
      test: 'a rejection with a bigint is told to everybody alike: its digits, over HTTP and gRPC, first and repeated',
    },
  },
  {
    mutant: 'keeps a rejection of any length',
    file: 'src/command/model/rejection.ts',
    from: 'return bytes <= maxBytes ? { text }',
    to: 'return bytes > 0 ? { text }',
    caughtBy: {
      file: 'src/command/model/rejection.pg.test.ts',
      test: 'a kept rejection is bounded as a response is: a repeat is told the reason without the details',
    },
  },
  {
    mutant: 'gives all attempts the same Map',
    file: 'src/command/pipeline/decided.ts',
    from: '      if (isAllPlain) return (value) => value',
    to: '      if (isAllPlain || instances.length === 0) return (value) => value',
    caughtBy: {
      file: 'src/command/pipeline/decided.pg.test.ts',
      test: 'what an attempt does to a Map of the plan the next one does not see, at any depth',
    },
  },
  {
    mutant: 'overlooks what an attempt did to an instance',
    file: 'src/command/pipeline/decided.ts',
    from: 'if (textOf(value, what) !== text) throw changed(what)',
    to: "if (textOf(value, what) === '') throw changed(what + text)",
    caughtBy: {
      file: 'src/command/pipeline/decided.pg.test.ts',
      test: 'an instance with toJSON is handed on as it is, and one that an attempt has changed is found out before the next',
    },
  },
  {
    mutant: 'plans with an instance that shows nothing',
    file: 'src/command/pipeline/decided.ts',
    from: 'what !== undefined && !(value instanceof Blob)',
    to: "what !== undefined && 'toJSON' in value",
    caughtBy: {
      file: 'src/command/pipeline/decided.pg.test.ts',
      test: 'an instance that shows nothing of itself is refused in a plan, and handed on in an input',
    },
  },
  {
    mutant: 'takes the last of two values under one name',
    file: 'src/core/encoding/exact-json.ts',
    from: 'hasOddNumber || colons !== countNames(value)',
    to: 'countNames(value) < 0 || hasOddNumber || colons < 0',
    caughtBy: {
      file: 'src/core/encoding/exact-json.test.ts',
      test: 'a name that stands twice in one object is refused by its name, however it is spelled, and not where objects differ',
    },
  },
  {
    mutant: 'takes a rounded number',
    file: 'src/core/encoding/exact-json.ts',
    from: 'if (isLost || isRounded ||',
    to: "if (isLost || (isRounded && word === '') ||",
    caughtBy: {
      file: 'src/core/encoding/exact-json.test.ts',
      test: 'a number that JSON.parse would round is refused with what to send instead: 9007199254740993',
    },
  },
  {
    mutant: 'takes a name that changes prototypes',
    file: 'src/core/encoding/exact-json.ts',
    from: "if (name === '__proto__' ||",
    to: "if (name === '__proto' ||",
    caughtBy: {
      file: 'src/core/encoding/exact-json.test.ts',
      test: 'a name that would change an object by its prototype is refused, however deep and however spelled',
    },
  },
  {
    mutant: 'takes plain text for JSON',
    file: 'src/integrations/read-body.ts',
    from: 'if (hasBody && !isJson.test(type)) {',
    to: "if (hasBody && type === 'x' && !isJson.test(type)) {",
    caughtBy: {
      file: 'src/integrations/command-body.test.ts',
      test: 'a body that another site could send with the cookies of a user is refused with 415, and never run: fetch',
    },
  },
  {
    mutant: 'calls a compressed body no JSON',
    file: 'src/integrations/read-body.ts',
    from: "if (fault === undefined || encoding === 'identity')",
    to: "if (fault === undefined || encoding !== '')",
    caughtBy: {
      file: 'src/integrations/command-body.test.ts',
      test: 'a compressed body is refused with 415 and what to send instead: fetch',
    },
  },
  {
    mutant: 'believes what a framework has parsed',
    file: 'src/integrations/read-body.ts',
    from: '  else assertExact(body, budget)\n',
    to: '',
    caughtBy: {
      file: 'src/integrations/command-body.test.ts',
      test: 'behind express, which parses the body first, the same is refused as far as it shows (its bytes are kept: false)',
    },
  },
  {
    mutant: 'takes another fact under a key for a repeat, through an outbox',
    file: 'sql/0003_create_outbox.sql',
    from: 'coalesce(k.content_hash <> r.content_hash, false)',
    to: 'coalesce(k.content_hash <> k.content_hash, false)',
    caughtBy: { file: 'src/ingest/ingest-outbox.pg.test.ts', test: 'is refused, alone or among others, and the first one stays' },
  },
  {
    mutant: 'accepts two facts of one key in one batch',
    file: 'src/ingest/fact-sink.ts',
    from: 'if (isFirst && !isTaken) return',
    to: 'if (!isTaken) return',
    caughtBy: {
      file: 'src/ingest/ingest-outbox.pg.test.ts',
      test: 'within one batch the first is recorded; a repeat of what was recorded before is never called a conflict',
    },
  },
  {
    mutant: "calls the recorded fact a conflict for its neighbour's sake",
    file: 'src/ingest/fact-sink.ts',
    from: 'return !isFirst && isTaken ?',
    to: 'return !isFirst && isTaken && facts.length === 0 ?',
    caughtBy: {
      file: 'src/ingest/ingest-outbox.pg.test.ts',
      test: 'within one batch the first is recorded; a repeat of what was recorded before is never called a conflict',
    },
  },
  {
    mutant: 'calls another order of names another fact',
    file: 'src/core/event/content-hash.ts',
    from: 'contentType === jsonContentType ?',
    to: "contentType === '' ?",
    caughtBy: {
      file: 'src/core/event/content-hash.test.ts',
      test: 'of JSON it is of the value, whatever the order of names and the spelling',
    },
  },
  {
    mutant: 'takes another fact under a key for a repeat, over a broker',
    file: 'src/consumer/tables/claim.sql.ts',
    from: 'b.content_hash <> a.content_hash',
    to: 'b.content_hash <> b.content_hash',
    caughtBy: {
      file: 'src/consumer/fact-conflicts.pg.test.ts',
      test: 'is noticed by a consumer with handlers; the first one stays, and a repeat of it is none',
    },
  },
  {
    mutant: 'says nothing of a conflict to those who ask',
    file: 'src/ingest/ingest.ts',
    from: "const conflict = processed === 'conflict'",
    to: "const conflict = processed === 'conflict' && name.eventId === ''",
    caughtBy: { file: 'src/consumer/fact-conflicts.pg.test.ts', test: 'is told by GET, and ends the question of a client' },
  },
  {
    mutant: 'writes a bigint into a column as nothing JSON knows',
    file: 'src/outbox/tables/outbox.sql.ts',
    from: ", bigint: 'text' }",
    to: ' }',
    caughtBy: {
      file: 'src/outbox/outbox.pg.test.ts',
      test: 'a bigint among the values of own columns is written as its digits, and what JSON cannot hold is refused by its path',
    },
  },
]

/** Mistakes in what bounds bytes from outside, in what codecs are told, and in what answers of commands are kept as. */
import type { SourceMutant } from './source-mutant.ts'

const budgetTest = 'src/core/encoding/budget.test.ts'
const kafkaTest = 'src/transport/kafka/client/requests.test.ts'
const exampleTest = 'test/e2e/encryption-example.pg.test.ts'

export const budgetMutants: readonly SourceMutant[] = [
  {
    mutant: 'parses JSON before it counts what is in it',
    file: 'src/core/encoding/budget.ts',
    from: '  if (text.length > budget.maxValues) assertJsonBudget(text, budget)\n  const value',
    to: '  const value',
    caughtBy: {
      file: budgetTest,
      test: 'JSON of few bytes that stands for many values or levels is refused before it is parsed',
    },
  },
  {
    mutant: 'reads JSON of any depth',
    file: 'src/core/encoding/budget.ts',
    from: 'text.length > 2 * budget.maxDepth) assertDepth',
    to: 'text.length < 0) assertDepth',
    caughtBy: {
      file: 'src/core/encoding/exact-json.test.ts',
      test: 'more levels than the budget has are refused, and read where it allows them',
    },
  },
  {
    mutant: 'writes JSON that its reader refuses',
    file: 'src/core/encoding/codec.ts',
    from: 'encodeJson(valid, budget)',
    to: 'encodeJson(valid)',
    caughtBy: {
      file: budgetTest,
      test: 'a codec refuses the same to its writer and to its reader, and both take what a larger budget allows',
    },
  },
  {
    mutant: 'counts the commas and brackets of texts',
    file: 'src/core/encoding/budget.ts',
    from: '      at = endOfString(text, at)\n      if (at === -1) return\n',
    to: '',
    caughtBy: { file: budgetTest, test: 'brackets and commas in texts count for nothing' },
  },
  {
    mutant: 'believes the parser of a framework in how much a body is',
    file: 'src/core/encoding/exact-json.ts',
    from: '      if (budget !== undefined && values > maxValues)',
    to: '      if (budget === undefined && values > maxValues)',
    caughtBy: {
      file: budgetTest,
      test: 'the budget of a body grows with the bytes it may have, and holds for bodies that a framework has parsed',
    },
  },
  {
    mutant: 'keeps a name that changes prototypes, where it is escaped',
    file: 'src/core/encoding/codec.ts',
    from: 'const suspicious = /__proto__|constructor|\\\\u00/',
    to: 'const suspicious = /__proto__|constructor/',
    caughtBy: { file: 'src/core/encoding/codec.test.ts', test: '__proto__ cannot survive in any escaped form, at any depth' },
  },
  {
    mutant: 'believes a list of Avro in how many items it has',
    file: 'src/codec/avro.ts',
    from: '    count?.(asBuffer(bytes), budget)\n',
    to: '    void count\n    void budget\n    void bytes\n',
    caughtBy: {
      file: 'src/codec/avro.test.ts',
      test: 'refuses a list that announces more items than it has bytes, before it makes room for them',
    },
  },
  {
    mutant: 'counts packed numbers of Protobuf as one value',
    file: 'src/codec/protobuf-budget.ts',
    from: 'for (; count.at < end; add(count, 1)) varint(count)',
    to: 'for (; count.at < end;) varint(count)',
    caughtBy: {
      file: 'src/codec/protobuf.test.ts',
      test: 'counts each number of a packed list, whether it is a number of its own length or of four or eight bytes',
    },
  },
  {
    mutant: 'keeps fields of Protobuf that it does not know',
    file: 'src/codec/protobuf.ts',
    from: 'fromBinary(schema, bytes, { readUnknownFields: false })',
    to: 'fromBinary(schema, bytes)',
    caughtBy: {
      file: 'src/codec/protobuf.test.ts',
      test: 'refuses the same to its writer, and keeps nothing of a field that it does not know',
    },
  },
  {
    mutant: 'inflates whatever a batch of Kafka becomes',
    file: 'src/transport/kafka/client/wire/answer-budget.ts',
    from: '{ maxOutputLength: Math.max(1, this.#bytesLeft) }',
    to: '{}',
    caughtBy: {
      file: kafkaTest,
      test: 'a batch of gzip that inflates to more than is allowed cannot be read, and the partition beside it is',
    },
  },
  {
    mutant: 'tells a batch as unreadable that only came too late in its answer',
    file: 'src/transport/kafka/client/wire/answer-budget.ts',
    from: 'if (this.#batches > 1) return new AnswerFull(why)',
    to: 'if (this.#batches > 1_000_000) return new AnswerFull(why)',
    caughtBy: {
      file: kafkaTest,
      test: 'batches of zstd that are too many for one answer come with the next, and none is told as unreadable',
    },
  },
  {
    mutant: 'makes a record of Kafka of every seven bytes',
    file: 'src/transport/kafka/client/wire/answer-budget.ts',
    from: 'if (this.#valuesLeft < 0) throw',
    to: 'if (this.#valuesLeft < -1_000_000) throw',
    caughtBy: { file: kafkaTest, test: 'many records without content are no way around the bound' },
  },
  {
    mutant: 'does not tell a codec of which aggregate it encodes',
    file: 'src/outbox/outbox.ts',
    from: 'contextOf(type, aggregateId)',
    to: "contextOf(type, '')",
    caughtBy: {
      file: exampleTest,
      test: 'a shredded customer is gone from the view, and a rebuild that meets the old events goes on',
    },
  },
  {
    mutant: 'keeps answers in the cache as they are',
    file: 'src/command/pipeline/run.ts',
    from: 'await pipeline.responses.encode(entry.response, responseContext(asked))',
    to: 'entry.response',
    caughtBy: {
      file: exampleTest,
      test: 'neither the outbox nor the marker nor the cache holds what was sealed, and a repeat is told all of it',
    },
  },
  {
    mutant: 'tells a repeat that it failed where its answer cannot be read any more',
    file: 'src/command/pipeline/committed.ts',
    from: '(isWaybillError(error) && !error.retryable) ? { response: null }',
    to: "isWaybillError(error, 'INTERNAL') ? { response: null }",
    caughtBy: {
      file: 'src/command/model/response-codec.pg.test.ts',
      test: 'an answer that does not open any more is one that was not kept, and one whose key is away is for later',
    },
  },
]

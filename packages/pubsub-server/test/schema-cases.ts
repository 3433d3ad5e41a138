/** Schemas, their revisions, and topics that enforce them. */
import avro from 'avsc'
import { expect } from 'vitest'
import type { Case, Harness } from './harness.ts'

const parent = 'projects/compat'
const fields = [
  { name: 'id', type: 'string' },
  { name: 'total', type: 'long' },
]
const avroDefinition = JSON.stringify({ type: 'record', name: 'Order', fields })
const widerDefinition = JSON.stringify({
  type: 'record',
  name: 'Order',
  fields: [...fields, { name: 'note', type: 'string', default: '' }],
})
const protoDefinition =
  'syntax = "proto3"; message Order { string id = 1; int64 total = 2; Kind kind = 3; enum Kind { A = 0; B = 1; } }'
const order = Buffer.from(JSON.stringify({ id: 'a', total: 1 }))

const idOf = (name: string): string => name.split('/').at(-1) ?? ''

async function create(h: Harness, type: 'AVRO' | 'PROTOCOL_BUFFER' = 'AVRO', definition?: string): Promise<string> {
  const text = definition ?? (type === 'AVRO' ? avroDefinition : protoDefinition)
  const [schema] = await h.schemas.createSchema({ parent, schemaId: idOf(h.name('schemas')), schema: { type, definition: text } })
  return schema.name ?? ''
}

async function enforcing(h: Harness, schema: string, encoding: 'JSON' | 'BINARY'): Promise<string> {
  return h.topic({ schemaSettings: { schema, encoding } })
}

export const schemaCases: readonly Case[] = [
  {
    name: 'CreateSchema',
    accepts: {
      what: 'Avro and Protocol Buffers',
      run: async (h) => void (await Promise.all([create(h), create(h, 'PROTOCOL_BUFFER')])),
    },
    refuses: {
      what: 'a definition that is none',
      code: 'INVALID_ARGUMENT',
      run: async (h) => create(h, 'AVRO', '{"type":"recrd"}'),
    },
  },
  {
    name: 'GetSchema',
    accepts: {
      what: 'the newest revision in full, or one by its id',
      run: async (h) => {
        const name = await create(h)
        const [schema] = await h.schemas.getSchema({ name })
        expect(schema.definition).toBe(avroDefinition)
        const [same] = await h.schemas.getSchema({ name: `${name}@${schema.revisionId}`, view: 'BASIC' })
        expect(same).toMatchObject({ revisionId: schema.revisionId, definition: '' })
      },
    },
    refuses: { what: 'an unknown one', code: 'NOT_FOUND', run: async (h) => h.schemas.getSchema({ name: h.name('schemas') }) },
  },
  {
    name: 'ListSchemas',
    accepts: {
      what: 'all of the project, over several pages',
      run: async (h) => {
        for (const schemaId of ['a1aa', 'a2aa', 'a3aa']) {
          await h.schemas.createSchema({
            parent: 'projects/paging',
            schemaId,
            schema: { type: 'AVRO', definition: avroDefinition },
          })
        }
        const [found] = await h.schemas.listSchemas({ parent: 'projects/paging', pageSize: 2 })
        expect(found.map(({ name }) => idOf(name ?? ''))).toEqual(['a1aa', 'a2aa', 'a3aa'])
      },
    },
    refuses: {
      what: 'a parent that is no project',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.schemas.listSchemas({ parent: 'paging' }),
    },
  },
  {
    name: 'ListSchemaRevisions',
    accepts: {
      what: 'newest first',
      run: async (h) => {
        const name = await create(h)
        const [newest] = await h.schemas.commitSchema({ name, schema: { name, type: 'AVRO', definition: widerDefinition } })
        const [revisions] = await h.schemas.listSchemaRevisions({ name })
        expect(revisions).toHaveLength(2)
        expect(revisions[0]?.revisionId).toBe(newest.revisionId)
      },
    },
    refuses: {
      what: 'an unknown schema',
      code: 'NOT_FOUND',
      run: async (h) => h.schemas.listSchemaRevisions({ name: h.name('schemas') }),
    },
  },
  {
    name: 'CommitSchema',
    accepts: {
      what: 'a new revision',
      run: async (h) => {
        const name = await create(h)
        const [revision] = await h.schemas.commitSchema({ name, schema: { name, type: 'AVRO', definition: widerDefinition } })
        expect((await h.schemas.getSchema({ name }))[0].revisionId).toBe(revision.revisionId)
      },
    },
    refuses: {
      what: 'another type',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const name = await create(h)
        return h.schemas.commitSchema({ name, schema: { name, type: 'PROTOCOL_BUFFER', definition: protoDefinition } })
      },
    },
  },
  {
    name: 'RollbackSchema',
    accepts: {
      what: 'an earlier definition under a new revision',
      run: async (h) => {
        const name = await create(h)
        const [first] = await h.schemas.getSchema({ name })
        await h.schemas.commitSchema({ name, schema: { name, type: 'AVRO', definition: widerDefinition } })
        const [back] = await h.schemas.rollbackSchema({ name, revisionId: first.revisionId ?? '' })
        expect(back.definition).toBe(avroDefinition)
        expect(back.revisionId).not.toBe(first.revisionId)
      },
    },
    refuses: {
      what: 'a revision that is not there',
      code: 'NOT_FOUND',
      run: async (h) => h.schemas.rollbackSchema({ name: await create(h), revisionId: 'ffffffff' }),
    },
  },
  {
    name: 'DeleteSchemaRevision',
    accepts: {
      what: 'one of several',
      run: async (h) => {
        const name = await create(h)
        const [first] = await h.schemas.getSchema({ name })
        await h.schemas.commitSchema({ name, schema: { name, type: 'AVRO', definition: widerDefinition } })
        await h.schemas.deleteSchemaRevision({ name: `${name}@${first.revisionId}` })
        expect((await h.schemas.listSchemaRevisions({ name }))[0]).toHaveLength(1)
      },
    },
    refuses: {
      what: 'the only one',
      code: 'FAILED_PRECONDITION',
      run: async (h) => {
        const name = await create(h)
        const [schema] = await h.schemas.getSchema({ name })
        return h.schemas.deleteSchemaRevision({ name: `${name}@${schema.revisionId}` })
      },
    },
  },
  {
    name: 'DeleteSchema',
    accepts: {
      what: 'topics that used it say _deleted-schema_',
      run: async (h) => {
        const name = await create(h)
        const topic = await enforcing(h, name, 'JSON')
        await h.schemas.deleteSchema({ name })
        expect((await h.publisher.getTopic({ topic }))[0].schemaSettings?.schema).toBe('_deleted-schema_')
      },
    },
    refuses: { what: 'an unknown one', code: 'NOT_FOUND', run: async (h) => h.schemas.deleteSchema({ name: h.name('schemas') }) },
  },
  {
    name: 'ValidateSchema',
    accepts: {
      what: 'a definition, without storing it',
      run: async (h) =>
        void (await h.schemas.validateSchema({ parent, schema: { type: 'PROTOCOL_BUFFER', definition: protoDefinition } })),
    },
    refuses: {
      what: 'two top-level messages',
      code: 'INVALID_ARGUMENT',
      run: async (h) =>
        h.schemas.validateSchema({
          parent,
          schema: { type: 'PROTOCOL_BUFFER', definition: 'syntax = "proto3"; message A {} message B {}' },
        }),
    },
  },
  {
    name: 'ValidateMessage',
    accepts: {
      what: 'JSON by a stored schema',
      run: async (h) =>
        void (await h.schemas.validateMessage({ parent, name: await create(h), message: order, encoding: 'JSON' })),
    },
    refuses: {
      what: 'a field the schema does not have',
      code: 'INVALID_ARGUMENT',
      run: async (h) =>
        h.schemas.validateMessage({
          parent,
          schema: { type: 'PROTOCOL_BUFFER', definition: protoDefinition },
          message: Buffer.from('{"id":"a","price":1}'),
          encoding: 'JSON',
        }),
    },
  },
  {
    name: 'Topic: schema_settings, JSON',
    accepts: {
      what: 'a conforming message, with the schema named in its attributes',
      run: async (h) => {
        const schema = await create(h, 'PROTOCOL_BUFFER')
        const { topic, subscription } = await h.pair({ topic: await enforcing(h, schema, 'JSON') })
        await h.publish(topic, ['{"id":"a","total":"1","kind":"B"}'])
        const [received] = await h.pull(subscription)
        expect(received?.attributes).toMatchObject({ googclient_schemaencoding: 'JSON', googclient_schemaname: schema })
      },
    },
    refuses: {
      what: 'a value of the wrong type',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publish(await enforcing(h, await create(h, 'PROTOCOL_BUFFER'), 'JSON'), ['{"id":1}']),
    },
  },
  {
    name: 'Topic: schema_settings, BINARY',
    accepts: {
      what: 'Avro binary of any revision',
      run: async (h) => {
        const name = await create(h)
        await h.schemas.commitSchema({ name, schema: { name, type: 'AVRO', definition: widerDefinition } })
        const bytes = avro.Type.forSchema(JSON.parse(avroDefinition)).toBuffer({ id: 'a', total: 1 })
        await h.publisher.publish({ topic: await enforcing(h, name, 'BINARY'), messages: [{ data: bytes }] })
      },
    },
    refuses: {
      what: 'bytes that do not decode',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publish(await enforcing(h, await create(h), 'BINARY'), ['\u0000']),
    },
  },
  {
    name: 'Topic: schema',
    accepts: {
      what: 'removed by an update',
      run: async (h) => {
        const topic = await enforcing(h, await create(h), 'JSON')
        await h.publisher.updateTopic({ topic: { name: topic }, updateMask: { paths: ['schema_settings'] } })
        await h.publish(topic, ['anything'])
      },
    },
    refuses: { what: 'one that is not there', code: 'NOT_FOUND', run: async (h) => enforcing(h, h.name('schemas'), 'JSON') },
  },
]

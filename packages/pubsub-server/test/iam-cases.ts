/** IAM policies, stored per resource. */
import { expect } from 'vitest'
import type { Case } from './harness.ts'

/** The client's types ask for generated classes; plain objects do. */
const as = (request: object): never => request as never

const bindings = [{ role: 'roles/pubsub.publisher', members: ['serviceAccount:relay@example.com'] }]

export const iamCases: readonly Case[] = [
  {
    name: 'SetIamPolicy',
    accepts: {
      what: 'a policy, with a new etag each time',
      run: async (h) => {
        const resource = await h.topic()
        const [first] = await h.publisher.setIamPolicy(as({ resource, policy: { bindings } }))
        const [second] = await h.publisher.setIamPolicy(as({ resource, policy: { bindings, etag: first.etag ?? '' } }))
        expect(second.etag).not.toEqual(first.etag)
      },
    },
    refuses: {
      what: 'an etag that is out of date',
      code: 'ABORTED',
      run: async (h) =>
        h.publisher.setIamPolicy(as({ resource: await h.topic(), policy: { bindings, etag: Buffer.from('stale') } })),
    },
  },
  {
    name: 'GetIamPolicy',
    accepts: {
      what: 'what was set, per resource',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publisher.setIamPolicy(as({ resource: topic, policy: { bindings } }))
        expect((await h.publisher.getIamPolicy(as({ resource: topic })))[0].bindings).toMatchObject(bindings)
        expect((await h.subscriber.getIamPolicy(as({ resource: subscription })))[0].bindings).toEqual([])
      },
    },
    refuses: {
      what: 'a resource that is not there',
      code: 'NOT_FOUND',
      run: async (h) => h.publisher.getIamPolicy(as({ resource: h.name('topics') })),
    },
  },
  {
    name: 'TestIamPermissions',
    accepts: {
      what: 'everybody may do everything',
      run: async (h) => {
        const permissions = ['pubsub.topics.publish']
        expect((await h.publisher.testIamPermissions(as({ resource: await h.topic(), permissions })))[0].permissions).toEqual(
          permissions,
        )
      },
    },
    refuses: {
      what: 'a permission of another service',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publisher.testIamPermissions(as({ resource: await h.topic(), permissions: ['storage.objects.get'] })),
    },
  },
]

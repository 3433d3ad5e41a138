/**
 * IAM policies, stored per resource and not enforced.
 *
 * An etag guards read-modify-write cycles, as Google's does.
 */
import { randomBytes } from 'node:crypto'
import type { Journal } from '../model/journal.ts'
import type { PolicyResource } from '../model/resources.ts'
import { invalid, notFound, RpcError } from '../model/rpc-error.ts'

export interface PolicyHost {
  readonly journal: Journal
  /** Whether there is a topic, subscription, snapshot or schema of that name. */
  has(resource: string): boolean
}

export class PolicyStore {
  readonly #policies = new Map<string, PolicyResource>()
  readonly #host: PolicyHost

  constructor(host: PolicyHost) {
    this.#host = host
  }

  get(resource: string): PolicyResource {
    this.#check(resource)
    return this.#policies.get(resource) ?? { version: 1, etag: Buffer.from('ACAB', 'base64'), bindings: [] }
  }

  set(resource: string, given: PolicyResource): PolicyResource {
    const current = this.get(resource)
    const { etag } = given
    if (etag !== undefined && etag.length > 0 && Buffer.compare(etag, current.etag ?? Buffer.alloc(0)) !== 0) {
      throw new RpcError('ABORTED', `The policy of ${resource} was changed meanwhile (etag mismatch): read it and try again.`)
    }
    for (const binding of given.bindings ?? []) {
      if (!/^(roles|projects|organizations)\//.test(binding.role ?? '')) {
        throw invalid(
          `Role ${binding.role ?? ''} is not supported for this resource: use a role such as roles/pubsub.subscriber.`,
        )
      }
    }
    const policy = { ...given, version: given.version ?? 1, etag: randomBytes(8) }
    this.restore(resource, policy)
    this.#host.journal.put('policy', resource, { ...policy, etag: policy.etag.toString('base64') })
    return policy
  }

  /** The permissions asked for: every caller has all of them. */
  test(resource: string, permissions: readonly string[]): readonly string[] {
    this.#check(resource)
    for (const permission of permissions) {
      if (!/^pubsub\.[a-zA-Z]+\.[a-zA-Z]+$/.test(permission)) {
        throw invalid(`Permission ${permission} is not valid for this resource: use one such as pubsub.topics.publish.`)
      }
    }
    return permissions
  }

  restore(resource: string, policy: PolicyResource): void {
    this.#policies.set(resource, policy)
  }

  forget(resource: string): void {
    if (this.#policies.delete(resource)) this.#host.journal.remove('policy', resource)
  }

  entries(): Iterable<[string, PolicyResource]> {
    return this.#policies
  }

  #check(resource: string): void {
    if (this.#host.has(resource)) return
    throw notFound(resource.split('/')[2]?.replace(/s$/, '') ?? 'resource', resource)
  }
}

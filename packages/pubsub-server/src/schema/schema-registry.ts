/**
 * Schemas, their revisions, and the check of what is published to a topic that has one.
 *
 * A message passes when it conforms to any revision within the topic's range, newest first; it is stored with
 * attributes that name the schema, the revision and the encoding, as Google adds them.
 */
import { randomBytes } from 'node:crypto'
import type { Clock } from '../model/clock.ts'
import type { Journal } from '../model/journal.ts'
import { checkName } from '../model/names.ts'
import { fromMs } from '../model/resources.ts'
import type { SchemaResource, SchemaSettings } from '../model/resources.ts'
import { alreadyExists, invalid, notFound, RpcError } from '../model/rpc-error.ts'
import { encodeAttribute, readData } from '../protocol/publish-codec.ts'
import type { IncomingMessage } from '../protocol/publish-codec.ts'
import { compileSchema } from './compile-schema.ts'
import type { Encoding, MessageCheck } from './compile-schema.ts'

/** The schema name of topics whose schema was deleted. */
export const deletedSchema = '_deleted-schema_'

const maxRevisions = 20

interface Revision {
  readonly resource: SchemaResource
  readonly check: MessageCheck
}

export interface SchemaHost {
  readonly clock: Clock
  readonly journal: Journal
}

export class SchemaRegistry {
  readonly #schemas = new Map<string, Revision[]>()
  readonly #host: SchemaHost

  constructor(host: SchemaHost) {
    this.#host = host
  }

  has(name: string): boolean {
    return this.#schemas.has(name)
  }

  /** A schema by name, or one revision of it by `name@revision`. */
  get(name: string): SchemaResource {
    return this.#revision(name).resource
  }

  /** The newest revision of every schema. */
  all(): SchemaResource[] {
    return [...this.#schemas.keys()].map((name) => this.get(name))
  }

  /** Newest first. */
  revisions(name: string): SchemaResource[] {
    return this.#revisions(name)
      .map(({ resource }) => resource)
      .toReversed()
  }

  create(name: string, given: SchemaResource): SchemaResource {
    checkName('schemas', name)
    if (this.#schemas.has(name)) throw alreadyExists('schema', name)
    return this.#add(name, [], given)
  }

  commit(name: string, given: SchemaResource): SchemaResource {
    const revisions = this.#revisions(name)
    const type = revisions.at(-1)?.resource.type
    if (given.type !== undefined && given.type !== type)
      throw invalid(`A schema keeps its type: ${name} is ${type ?? 'unknown'}.`)
    if (revisions.length >= maxRevisions)
      throw new RpcError('RESOURCE_EXHAUSTED', `A schema has at most ${maxRevisions} revisions.`)
    return this.#add(name, revisions, { ...given, ...(type === undefined ? {} : { type }) })
  }

  /** Makes an earlier revision the newest one again, under a new id. */
  rollback(name: string, revisionId: string): SchemaResource {
    if (revisionId === '') throw invalid('A rollback needs a revision_id.')
    const { resource } = this.#revision(`${name}@${revisionId}`)
    return this.#add(name, this.#revisions(name), resource)
  }

  deleteRevision(nameAtRevision: string): SchemaResource {
    const [name = '', revisionId] = nameAtRevision.split('@')
    if (revisionId === undefined) throw invalid('Name the revision: projects/<project>/schemas/<id>@<revision>.')
    this.#revision(nameAtRevision)
    const rest = this.#revisions(name).filter(({ resource }) => resource.revisionId !== revisionId)
    if (rest.length === 0)
      throw new RpcError('FAILED_PRECONDITION', 'The only revision of a schema cannot be deleted: delete the schema.')
    this.#store(name, rest)
    return this.get(name)
  }

  delete(name: string): void {
    this.#schemas.delete(name)
    this.#host.journal.remove('schema', name)
  }

  restore(name: string, resources: readonly SchemaResource[]): void {
    this.#schemas.set(
      name,
      resources.map((resource) => ({ resource, check: compileSchema(resource) })),
    )
  }

  /** Throws unless the data conforms to the schema, or to the one revision, of that name. */
  checkMessage(name: string, data: Buffer, encoding: Encoding): void {
    this.#revision(name).check(data, encoding)
  }

  /** Checks every message of a publish; returns the attributes that all of them get. */
  checkPublish(settings: SchemaSettings, messages: readonly IncomingMessage[]): Buffer {
    const { schema = '', encoding = 'JSON' } = settings
    if (schema === deletedSchema) throw invalid('The schema of the topic was deleted: set another one, or none.')
    const candidates = this.#range(schema, settings).toReversed()
    const used = candidates.find((revision, index) =>
      conform(revision, messages, encoding as Encoding, index === candidates.length - 1),
    )
    return Buffer.concat([
      encodeAttribute('googclient_schemaencoding', encoding),
      encodeAttribute('googclient_schemaname', schema),
      encodeAttribute('googclient_schemarevisionid', used?.resource.revisionId ?? ''),
    ])
  }

  #range(name: string, { firstRevisionId = '', lastRevisionId = '' }: SchemaSettings): Revision[] {
    const revisions = this.#revisions(name)
    const indexOf = (id: string): number => revisions.findIndex(({ resource }) => resource.revisionId === id)
    const first = firstRevisionId === '' ? 0 : Math.max(0, indexOf(firstRevisionId))
    const last = lastRevisionId === '' ? revisions.length - 1 : indexOf(lastRevisionId)
    return revisions.slice(first, last + 1)
  }

  #revisions(name: string): Revision[] {
    const revisions = this.#schemas.get(name)
    if (revisions === undefined) throw notFound('schema', name)
    return revisions
  }

  #revision(nameAtRevision: string): Revision {
    const [name = '', revisionId] = nameAtRevision.split('@')
    const revisions = this.#revisions(name)
    const found =
      revisionId === undefined ? revisions.at(-1) : revisions.find(({ resource }) => resource.revisionId === revisionId)
    if (found === undefined) throw notFound('schema revision', nameAtRevision)
    return found
  }

  #add(name: string, earlier: readonly Revision[], given: SchemaResource): SchemaResource {
    const { type = 'TYPE_UNSPECIFIED', definition = '' } = given
    const resource: SchemaResource = {
      name,
      type,
      definition,
      revisionId: randomBytes(4).toString('hex'),
      revisionCreateTime: fromMs(this.#host.clock.nowMs()),
    }
    this.#store(name, [...earlier, { resource, check: compileSchema(resource) }])
    return resource
  }

  #store(name: string, revisions: Revision[]): void {
    this.#schemas.set(name, revisions)
    this.#host.journal.put(
      'schema',
      name,
      revisions.map(({ resource }) => resource),
    )
  }
}

/** Whether all messages conform to the revision; the failure is thrown when there is no other revision to try. */
function conform(revision: Revision, messages: readonly IncomingMessage[], encoding: Encoding, isLast: boolean): boolean {
  try {
    for (const message of messages) revision.check(readData(message.source.subarray(message.start, message.end)), encoding)
    return true
  } catch (error) {
    if (isLast) throw error
    return false
  }
}

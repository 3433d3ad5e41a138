/** google.pubsub.v1.SchemaService over the registry. */
import { checkProject, isIn } from '../model/names.ts'
import type { SchemaResource } from '../model/resources.ts'
import { invalid } from '../model/rpc-error.ts'
import { deleteSchema } from '../operations/topics.ts'
import { compileSchema } from '../schema/compile-schema.ts'
import { unary } from './call.ts'
import type { CallContext, UnaryHandler } from './call.ts'
import { pageOf } from './page.ts'
import type { PageRequest } from './page.ts'

type View = 'SCHEMA_VIEW_UNSPECIFIED' | 'BASIC' | 'FULL'

interface ListRequest extends PageRequest {
  readonly view?: View
}

interface ValidateMessageRequest {
  readonly parent: string
  readonly name?: string
  readonly schema?: SchemaResource
  readonly message?: Buffer
  readonly encoding?: string
}

export function schemaService(context: CallContext): Record<string, UnaryHandler> {
  const { schemas } = context.broker
  return {
    CreateSchema: unary(context, (request: { parent: string; schema?: SchemaResource; schemaId?: string }) =>
      schemas.create(`${checkProject(request.parent)}/schemas/${request.schemaId ?? ''}`, request.schema ?? { name: '' }),
    ),
    GetSchema: unary(context, ({ name, view }: { name: string; view?: View }) => shown(schemas.get(name), view ?? 'FULL')),
    ListSchemas: unary(context, (request: ListRequest & { parent: string }) => {
      const project = checkProject(request.parent)
      const own = schemas.all().filter(({ name }) => isIn(project, name))
      const page = pageOf(own, ({ name }) => name, request)
      return { schemas: page.items.map((schema) => shown(schema, request.view ?? 'BASIC')), nextPageToken: page.nextPageToken }
    }),
    ListSchemaRevisions: unary(context, (request: ListRequest & { name: string }) => {
      const numbered = schemas.revisions(request.name).map((schema, index) => ({ schema, place: String(index).padStart(4, '0') }))
      const page = pageOf(numbered, ({ place }) => place, request)
      const revisions = page.items.map(({ schema }) => shown(schema, request.view ?? 'BASIC'))
      return { schemas: revisions, nextPageToken: page.nextPageToken }
    }),
    CommitSchema: unary(context, (request: { name: string; schema?: SchemaResource }) =>
      schemas.commit(request.name, request.schema ?? { name: '' }),
    ),
    RollbackSchema: unary(context, (request: { name: string; revisionId?: string }) =>
      schemas.rollback(request.name, request.revisionId ?? ''),
    ),
    DeleteSchemaRevision: unary(context, ({ name, revisionId }: { name: string; revisionId?: string }) =>
      schemas.deleteRevision(
        name.includes('@') || revisionId === undefined || revisionId === '' ? name : `${name}@${revisionId}`,
      ),
    ),
    DeleteSchema: unary(context, ({ name }: { name: string }) => {
      deleteSchema(context.broker, name)
      return {}
    }),
    ValidateSchema: unary(context, (request: { parent: string; schema?: SchemaResource }) => {
      checkProject(request.parent)
      compileSchema(request.schema ?? { name: '' })
      return {}
    }),
    ValidateMessage: unary(context, (request: ValidateMessageRequest) => {
      const { name, schema, message = Buffer.alloc(0), encoding } = request
      if (encoding !== 'JSON' && encoding !== 'BINARY') throw invalid('A message has an encoding: JSON or BINARY.')
      if (name !== undefined) schemas.checkMessage(name, message, encoding)
      else if (schema !== undefined) compileSchema(schema)(message, encoding)
      else throw invalid('Say which schema: a name, or a definition.')
      return {}
    }),
  }
}

function shown(schema: SchemaResource, view: View): SchemaResource {
  if (view === 'FULL') return schema
  const { definition: _, ...basic } = schema
  return basic
}

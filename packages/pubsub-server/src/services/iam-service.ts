/** google.iam.v1.IAMPolicy over the stored policies. */
import { applyFieldMask } from '../model/field-mask.ts'
import type { PolicyResource } from '../model/resources.ts'
import { unary } from './call.ts'
import type { CallContext, UnaryHandler } from './call.ts'

interface SetRequest {
  readonly resource: string
  readonly policy?: PolicyResource
  readonly updateMask?: { readonly paths?: readonly string[] }
}

const changeableFields: ReadonlySet<string> = new Set(['version', 'bindings', 'etag', 'auditConfigs'])

export function iamService(context: CallContext): Record<string, UnaryHandler> {
  const { policies } = context.broker
  return {
    GetIamPolicy: unary(context, ({ resource }: { resource: string }) => policies.get(resource)),
    SetIamPolicy: unary(context, ({ resource, policy = {}, updateMask }: SetRequest) => {
      const paths = updateMask?.paths ?? []
      if (paths.length === 0) return policies.set(resource, policy)
      return policies.set(
        resource,
        applyFieldMask({ current: policies.get(resource), patch: policy, paths, changeable: changeableFields }),
      )
    }),
    TestIamPermissions: unary(context, (request: { resource: string; permissions?: string[] }) => ({
      permissions: policies.test(request.resource, request.permissions ?? []),
    })),
  }
}

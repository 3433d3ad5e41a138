/**
 * The health protocol of gRPC (`grpc.health.v1.Health/Check`), so that health is asked on the port that serves gRPC anyway.
 *
 *   const { definition, implementation } = grpcHealth(createHealth({ consumers }))
 *   server.addService(definition, implementation)
 *
 * The service `liveness` says whether the process should go on, `readiness` or the empty name whether it does its work. Its
 * two messages have one field each, so they are written here and no package is needed.
 */

/** What `createHealth` makes. */
export interface HealthLike {
  live(): { readonly ok: boolean }
  ready(): Promise<{ readonly ok: boolean }>
}

/** A type, not an interface: gRPC wants an index signature. */
export type GrpcHealthDefinition = {
  readonly Check: {
    readonly path: string
    readonly requestStream: false
    readonly responseStream: false
    readonly requestSerialize: (request: HealthRequest) => Buffer
    readonly requestDeserialize: (bytes: Buffer) => HealthRequest
    readonly responseSerialize: (status: ServingStatus) => Buffer
    readonly responseDeserialize: (bytes: Buffer) => ServingStatus
  }
}

/** Empty for the process as a whole. */
export interface HealthRequest {
  readonly service: string
}

export type ServingStatus = 'UNKNOWN' | 'SERVING' | 'NOT_SERVING'

/** A call of `@grpc/grpc-js`, and the way to answer it. */
export type HealthCheck = (
  call: { readonly request: HealthRequest },
  answer: (error: { readonly code: number; readonly details: string } | null, status?: ServingStatus) => void,
) => void

export interface GrpcHealth {
  readonly definition: GrpcHealthDefinition
  readonly implementation: { readonly [method: string]: HealthCheck }
}

const statuses: readonly ServingStatus[] = ['UNKNOWN', 'SERVING', 'NOT_SERVING']
const notFound = 5
const internal = 13

export function grpcHealth(health: HealthLike): GrpcHealth {
  const look = async (service: string): Promise<boolean | undefined> => {
    if (service === 'liveness') return health.live().ok
    return service === '' || service === 'readiness' ? (await health.ready()).ok : undefined
  }
  return {
    definition,
    implementation: {
      Check: ({ request }, answer) => {
        look(request.service).then(
          (ok) => {
            if (ok === undefined) return answer({ code: notFound, details: 'Ask for liveness, readiness or nothing.' })
            answer(null, ok ? 'SERVING' : 'NOT_SERVING')
          },
          () => answer({ code: internal, details: 'Health could not be asked.' }),
        )
      },
    },
  }
}

/** One field of bytes with the number 1; one of a number with the number 1. */
const [textTag, numberTag] = [0x0a, 0x08]

const definition: GrpcHealthDefinition = {
  Check: {
    path: '/grpc.health.v1.Health/Check',
    requestStream: false,
    responseStream: false,
    requestSerialize: ({ service }) =>
      service === '' ? Buffer.alloc(0) : Buffer.from([textTag, Buffer.byteLength(service), ...Buffer.from(service)]),
    requestDeserialize: (bytes) => ({ service: readService(bytes) }),
    responseSerialize: (status) => Buffer.from([numberTag, statuses.indexOf(status)]),
    responseDeserialize: (bytes) => (bytes[0] === numberTag ? statuses[bytes[1] ?? 0] : undefined) ?? 'UNKNOWN',
  },
}

/** The name that is asked for. One that does not fit into a byte of length is none that we have. */
function readService(bytes: Buffer): string {
  const length = bytes[1] ?? 0
  if (bytes.byteLength === 0) return ''
  return bytes[0] === textTag && length < 0x80 && bytes.byteLength === length + 2 ? bytes.toString('utf8', 2) : 'unknown'
}

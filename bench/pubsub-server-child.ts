/**
 * The two servers of the pubsub-server bench in a process of their own: ours, and one that returns every request as it came.
 *
 * It says where they listen, and answers `heap` with the bytes in use after a full garbage collection.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { type sendUnaryData, Server, ServerCredentials, type ServerUnaryCall } from '@grpc/grpc-js'
import { startPubsubServer } from 'waybill-pubsub-server'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

const asIs = (bytes: Buffer): Buffer => bytes
const codecs = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs }
const echo = new Server({ 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 })
echo.addService(
  { Echo: { path: '/bench.Echo/Echo', requestStream: false, responseStream: false, ...codecs } },
  { Echo: (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>) => callback(null, call.request) },
)
const echoPort = await new Promise<number>((resolve, reject) => {
  echo.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) =>
    error === null ? resolve(port) : reject(error),
  )
})
const pubsub = await startPubsubServer()

process.on('message', (message) => {
  if (message !== 'heap') return
  // Buffers freed by one collection are returned by the next.
  collectGarbage()
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  process.send?.({ heapBytes: heapUsed + external })
})
process.send?.({ echoPort, pubsubPort: pubsub.port })

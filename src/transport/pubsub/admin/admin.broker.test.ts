import { Server, ServerCredentials } from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { createPubsubAdmin } from './admin.ts'

test('a server that cannot change topics is left as it is; one that cannot make them is an error', async () => {
  const nothing = new Server()
  onTestFinished(() => nothing.forceShutdown())
  const port = await new Promise<number>((resolve, reject) => {
    nothing.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    )
  })
  const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost: `127.0.0.1:${port}` })
  onTestFinished(() => admin.close())
  const topic = { name: 'video.events', retentionSeconds: 0, schema: undefined }
  await admin.updateTopic(topic, ['retentionSeconds'])
  await expect(admin.createTopic(topic)).rejects.toThrow(/createTopic/)
})

import express, { type Request } from 'express'
import { ingestHttpContract } from '../../test/contract/ingest-http-contract.ts'
import { listen } from '../../test/integrations/listen.ts'
import { expressIngest } from './express.ts'

const principal = (request: Request): string | undefined => request.get('x-user')

ingestHttpContract('express', async ({ open, own, slow }) => {
  const app = express()
  app.use(express.json({ limit: open.limits.maxBodyBytes }))
  app.use('/readings', expressIngest(open, { path: '/readings', allowedOrigins: ['https://app.example.com'] }))
  app.use('/own/readings', expressIngest(own, { path: '/own/readings', principal, scope: 'principal' }))
  app.use('/slow', expressIngest(slow, { path: '/slow' }))
  return await listen(app)
})
